package telegram_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

func TestTheChatIsFoundInEveryKindThatHasOne(t *testing.T) {
	t.Parallel()
	inChat := `{"chat":{"id":-1001050017772,"type":"supergroup"},"message":{"chat":{"id":5}}}`
	for _, kind := range []string{
		"message", "edited_message", "channel_post", "edited_channel_post", "business_message",
		"edited_business_message", "deleted_business_messages", "message_reaction", "message_reaction_count",
		"my_chat_member", "chat_member", "chat_join_request", "chat_boost", "removed_chat_boost",
		"a_kind_of_next_year",
	} {
		u, err := telegram.Parse([]byte(`{"update_id":9,"` + kind + `":` + inChat + `}`))
		require.NoError(t, err)
		require.Equal(t, telegram.Update{ID: 9, Kind: kind, Chat: "-1001050017772", Raw: u.Raw}, u)
	}
	for raw, want := range map[string]string{
		`{"update_id":1,"callback_query":{"id":"1","message":{"chat":{"id":4}}}}`:  "4",
		`{"update_id":1,"callback_query":{"id":"1","inline_message_id":"x"}}`:      "",
		`{"update_id":1,"callback_query":{"message":{"chat":{"id":4},"date":0}}}`:  "4", // an inaccessible message
		`{"update_id":1,"business_connection":{"id":"b","user_chat_id":8}}`:        "8",
		`{"update_id":1,"chat_join_request":{"chat":{"id":-4},"user_chat_id":8}}`:  "-4",
		`{"update_id":1,"inline_query":{"id":"1","from":{"id":3},"query":"chat"}}`: "",
		`{"update_id":1,"chosen_inline_result":{"result_id":"1"}}`:                 "",
		`{"update_id":1,"poll":{"id":"1"}}`:                                        "",
		`{"update_id":1,"poll_answer":{"poll_id":"1","voter_chat":{"id":3}}}`:      "", // who voted, not where
		`{"update_id":1,"pre_checkout_query":{"id":"1"}}`:                          "",
		`{"update_id":1}`: "",
		`{"update_id":1,"message":{"chat":{"id":9223372036854775807}}}`:                    "9223372036854775807",
		`{"update_id":1,"message":{"reply_to_message":{"chat":{"id":3}},"chat":{"id":4}}}`: "4",
		` {"update_id":1,"message":{"chat":{"id":4}}} `:                                    "4",
	} {
		u, err := telegram.Parse([]byte(raw))
		require.NoError(t, err, raw)
		require.Equal(t, want, u.Chat, raw)
		require.EqualValues(t, 1, u.ID)
	}
}

func TestWhatIsNoUpdateIsRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		``, `null`, `7`, `[]`, `"x"`, `{`, `{}{}`, `{"update_id":1}x`, `{}`, `{"update_id":null}`, `{"update_id":"1"}`,
		`{"update_id":1.5}`, `{"Update_ID":1}`, `{"update_id":99999999999999999999}`,
		`{"update_id":1,"message":null}`, `{"update_id":1,"message":7}`, `{"update_id":1,"message":{}}`,
		`{"update_id":1,"message":{"chat":{}}}`, `{"update_id":1,"message":{"chat":{"id":"4"}}}`,
		`{"update_id":1,"message":{"chat":{"id":4.5}}}`, `{"update_id":1,"message":{"chat":null}}`,
		`{"update_id":1,"callback_query":{"message":{"chat":{}}}}`,
		`{"update_id":1,"message":{"chat":{"id":4}},"edited_message":{"chat":{"id":4}}}`,
	} {
		_, err := telegram.Parse([]byte(raw))
		require.ErrorIs(t, err, telegram.ErrMalformed, raw)
		var m *telegram.MalformedError
		require.ErrorAs(t, err, &m, raw)
		require.NotEmpty(t, m.Reason)
	}
}

func readAll(t *testing.T, r *telegram.Reader) (ids []int64) {
	t.Helper()
	for {
		u, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ids
		}
		require.NoError(t, err)
		ids = append(ids, u.ID)
	}
}

func TestLinesAreCountedAndLeftOutOnesReported(t *testing.T) {
	t.Parallel()
	long := `{"update_id":40,"message":{"chat":{"id":1},"text":"` + strings.Repeat("x", telegram.MaxLine) + `"}}`
	fits := `{"update_id":41,"message":{"chat":{"id":1},"text":"` + strings.Repeat("x", telegram.MaxLine/2) + `"}}`
	input := strings.Join([]string{
		"\xef\xbb\xbf" + `{"update_id":30}`, // 1
		``,                                  // 2
		"  \r",                              // 3
		`{"update_id":20}` + "\r",           // 4: smaller than the one before, but new
		`nonsense`,                          // 5
		`{"update_id":30}`,                  // 6: a redelivery
		long,                                // 7
		fits,                                // 8
		`{"update_id":50}`,                  // 9: the file ends without a line end
	}, "\n")
	var reports []string
	ids := readAll(t, telegram.NewReader(strings.NewReader(input), func(e *telegram.LineError) {
		reports = append(reports, e.Error())
	}))
	require.Equal(t, []int64{30, 20, 41, 50}, ids)
	require.Len(t, reports, 3)
	require.Contains(t, reports[0], "line 5 left out: malformed update")
	require.Equal(t, "line 6 left out: redelivery: update_id 30 came before, on line 1", reports[1])
	require.Contains(t, reports[2], "line 7 left out: malformed update: longer than")
}

func TestAnErrorOfTheFileIsNotItsEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	r := telegram.NewReader(io.MultiReader(strings.NewReader("{\"update_id\":1}\n"), failing{broken}), func(*telegram.LineError) {})
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestTheSampleIsReadWhole(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../testdata/telegram-updates.ndjson")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	r := telegram.NewReader(file, func(e *telegram.LineError) { t.Error(e) })
	kinds, chats := map[string]int{}, map[string]int{}
	for {
		u, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		kinds[u.Kind]++
		chats[u.Chat]++
	}
	require.Equal(t, map[string]int{
		"message": 1295, "callback_query": 93, "edited_message": 72, "channel_post": 25, "inline_query": 15,
	}, kinds)
	require.Equal(t, 15, chats[""])
	require.Equal(t, 212, chats["747892279"])
}

func TestTheGeneratedSetHasBurstsAndRepeatsItself(t *testing.T) {
	t.Parallel()
	generate := func(seed uint64) (raw []string, neighbours int, chats map[string]int) {
		g := telegram.NewGenerator(500, 10, seed)
		chats = make(map[string]int)
		last := ""
		for {
			u, err := g.Next()
			if errors.Is(err, io.EOF) {
				return raw, neighbours, chats
			}
			require.NoError(t, err)
			raw = append(raw, string(u.Raw))
			chats[u.Chat]++
			if u.Chat != "" && u.Chat == last {
				neighbours++
			}
			last = u.Chat
		}
	}
	first, neighbours, chats := generate(1)
	require.Len(t, first, 500)
	require.Greater(t, neighbours, 200)
	require.LessOrEqual(t, len(chats), 11)
	require.Greater(t, len(chats), 8)
	require.Positive(t, chats[""], "some have no chat")
	again, _, _ := generate(1)
	require.Equal(t, first, again)
	other, _, _ := generate(2)
	require.NotEqual(t, first, other)
	seen := map[string]bool{}
	for _, raw := range first {
		require.False(t, seen[raw])
		seen[raw] = true
	}
}

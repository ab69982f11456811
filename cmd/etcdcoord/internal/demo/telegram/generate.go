package telegram

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"strconv"
)

// Generator makes a set of updates that looks like a busy evening: a few chats get most of them,
// people write several messages in a row, and now and then comes something that has no chat.
// The same arguments give the same set.
type Generator struct {
	rnd        *rand.Rand
	left       int
	nextID     int64
	chats      []int64
	weights    []int // running sums
	burstChat  int64
	burstLeft  int
	messageIDs map[int64]int
}

// NewGenerator makes messages updates over the given number of chats.
func NewGenerator(messages, chats int, seed uint64) *Generator {
	g := &Generator{
		rnd: rand.New(rand.NewPCG(seed, 0x6563)), left: messages, nextID: 700_000_001,
		messageIDs: make(map[int64]int),
	}
	sum := 0
	for i := range chats {
		id := 100_000_000 + g.rnd.Int64N(7_000_000_000) // a private chat; newer ids need more than 32 bits
		if i%3 == 1 {
			id = -1_001_000_000_000 - g.rnd.Int64N(999_000_000) // a supergroup
		}
		sum += 1 + 3*chats/(i+1)
		g.chats, g.weights = append(g.chats, id), append(g.weights, sum)
	}
	return g
}

// Next is the next update, io.EOF after the last.
func (g *Generator) Next() (Update, error) {
	if g.left == 0 {
		return Update{}, io.EOF
	}
	g.left--
	g.nextID++
	body := map[string]any{"update_id": g.nextID - 1}
	if g.burstLeft == 0 {
		if g.rnd.IntN(60) == 0 {
			body["inline_query"] = map[string]any{"id": strconv.FormatInt(g.nextID, 10), "from": g.user(), "query": "weather", "offset": ""}
			return g.finish(body)
		}
		g.burstChat, g.burstLeft = g.pickChat(), 1+g.rnd.IntN(6)
	}
	g.burstLeft--
	kind, content := g.inChat()
	body[kind] = content
	return g.finish(body)
}

// finish goes through Parse: what the platform posts is read the same way as a file.
func (g *Generator) finish(body map[string]any) (Update, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return Update{}, err
	}
	return Parse(raw)
}

func (g *Generator) pickChat() int64 {
	n := g.rnd.IntN(g.weights[len(g.weights)-1])
	for i, sum := range g.weights {
		if n < sum {
			return g.chats[i]
		}
	}
	panic("unreachable: n is below the last sum")
}

func (g *Generator) inChat() (kind string, content map[string]any) {
	g.messageIDs[g.burstChat]++
	msg := map[string]any{
		"message_id": g.messageIDs[g.burstChat], "from": g.user(), "chat": g.chat(),
		"date": 1_790_000_000 + g.nextID - 700_000_000, "text": words[g.rnd.IntN(len(words))],
	}
	switch g.rnd.IntN(20) {
	case 0:
		msg["edit_date"] = msg["date"]
		return "edited_message", msg
	case 1, 2:
		return "callback_query", map[string]any{
			"id": strconv.FormatInt(g.rnd.Int64(), 10), "from": g.user(), "message": msg,
			"chat_instance": strconv.FormatInt(g.rnd.Int64(), 10), "data": "next",
		}
	case 3:
		return "message_reaction", map[string]any{
			"chat": g.chat(), "message_id": msg["message_id"], "user": g.user(), "date": msg["date"],
			"old_reaction": []any{}, "new_reaction": []any{map[string]any{"type": "emoji", "emoji": "👍"}},
		}
	}
	return "message", msg
}

func (g *Generator) chat() map[string]any {
	if g.burstChat < 0 {
		return map[string]any{"id": g.burstChat, "type": "supergroup", "title": "Room"}
	}
	return map[string]any{"id": g.burstChat, "type": "private", "first_name": "Ada"}
}

func (g *Generator) user() map[string]any {
	return map[string]any{"id": 100_000_000 + g.rnd.Int64N(7_000_000_000), "is_bot": false, "first_name": "Ada"}
}

var words = []string{"hello", "/start", "/help", "is the room free?", "two tickets please", "¿cómo?", "你好", "thanks 🙏", "cancel that", "when?"}

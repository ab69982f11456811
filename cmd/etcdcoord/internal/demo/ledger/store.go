package ledger

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/fencing"
)

// SecretHeader carries what only the parent and its replicas know: other users of the machine
// can reach loopback ports too.
const SecretHeader = "X-Demo-Secret"

// Call is what a replica says with each request.
type Call struct {
	Replica string `json:"replica"`
	Attempt int64  `json:"attempt,omitempty"`
	Update  int64  `json:"update,omitempty"`
	Chat    string `json:"chat,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Base    int64  `json:"base,omitempty"` // Write: the version that was read
	Note    string `json:"note,omitempty"`
}

// View is a ledger as read by Begin.
type View struct {
	Version int64   `json:"version"`
	Updates []int64 `json:"updates"`
}

// Fences decides about a fence; *fencing.Watermark is the one to use.
type Fences interface {
	Admit(key string, t fencing.Token) error
}

// Store holds the ledgers.
type Store struct {
	journal *journal.Journal
	fences  Fences // nil: nothing is refused
	secret  string
	// BeforeWrite, if set before the first request, runs when a Write was announced, and may block.
	BeforeWrite func(Call)

	mu      sync.Mutex // held while a request is decided *and* entered into the journal, so that both have one order
	ledgers map[string]*View
}

// NewStore returns an empty store. With fences == nil it accepts everything.
func NewStore(j *journal.Journal, fences Fences, secret string) *Store {
	return &Store{journal: j, fences: fences, secret: secret, ledgers: make(map[string]*View)}
}

// Ledgers is what the store holds.
func (s *Store) Ledgers() map[string][]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]int64, len(s.ledgers))
	for chat, view := range s.ledgers {
		all[chat] = slices.Clone(view.Updates)
	}
	return all
}

// Handler serves the store.
func (s *Store) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /begin", s.serve(s.begin))
	mux.HandleFunc("POST /already", s.serve(s.note(journal.Already)))
	mux.HandleFunc("POST /gave-up", s.serve(s.note(journal.GaveUp)))
	mux.HandleFunc("POST /beat", s.serve(s.beat))
	mux.HandleFunc("POST /write", s.write)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(SecretHeader) != s.secret {
			http.Error(w, "wrong secret", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serve reads the call from the body and answers with what do returns.
func (s *Store) serve(do func(Call) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call Call
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := do(call)
		reply(w, answer, err)
	}
}

func reply(w http.ResponseWriter, answer any, err error) {
	switch {
	case errors.Is(err, fencing.ErrStaleToken):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		// The status is out once the encoding has begun: an error here is the connection's.
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// admit looks at the fence. What has no chat has no turn, and so no fence.
func (s *Store) admit(c Call) error {
	if s.fences == nil || c.Chat == "" {
		return nil
	}
	return s.fences.Admit(c.Chat, fencing.Token(c.Fence))
}

func (s *Store) enter(kind journal.Kind, c Call, version int64) {
	s.journal.Add(journal.Entry{
		Kind: kind, Replica: c.Replica, Update: c.Update, Chat: c.Chat, Attempt: c.Attempt,
		Fence: c.Fence, Base: c.Base, Version: version, Note: c.Note,
	})
}

func (s *Store) begin(c Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(c); err != nil {
		s.enter(journal.BeginRefused, c, 0)
		return nil, err
	}
	view := s.ledger(c.Chat)
	s.enter(journal.Begin, c, view.Version)
	return View{Version: view.Version, Updates: slices.Clone(view.Updates)}, nil
}

func (s *Store) note(kind journal.Kind) func(Call) (any, error) {
	return func(c Call) (any, error) {
		s.enter(kind, c, 0)
		return nil, nil
	}
}

func (s *Store) beat(c Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(c); err != nil {
		s.enter(journal.BeatRefused, c, 0)
		return nil, err
	}
	s.enter(journal.Beat, c, 0)
	return nil, nil
}

// write gets the call in a header, because the body is asked for only after BeforeWrite.
func (s *Store) write(w http.ResponseWriter, r *http.Request) {
	var call Call
	if err := json.Unmarshal([]byte(r.Header.Get(callHeader)), &call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.BeforeWrite != nil {
		s.BeforeWrite(call)
	}
	var updates []int64
	// The first read sends "100 Continue".
	if err := json.NewDecoder(r.Body).Decode(&updates); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // for one, the writer was killed
		return
	}
	reply(w, nil, s.replace(call, updates))
}

func (s *Store) replace(c Call, updates []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := s.ledger(c.Chat)
	if c.Chat == "" {
		if slices.Contains(view.Updates, c.Update) {
			s.enter(journal.Already, c, view.Version)
			return nil
		}
		updates = append(slices.Clone(view.Updates), c.Update)
	}
	if err := s.admit(c); err != nil {
		s.enter(journal.WriteRefused, c, view.Version)
		return err
	}
	view.Version++
	view.Updates = updates
	s.enter(journal.Wrote, c, view.Version)
	return nil
}

func (s *Store) ledger(chat string) *View {
	view := s.ledgers[chat]
	if view == nil {
		view = &View{}
		s.ledgers[chat] = view
	}
	return view
}

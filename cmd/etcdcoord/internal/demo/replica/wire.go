package replica

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/connect"
)

// Headers of a post.
const (
	SecretHeader   = "X-Telegram-Bot-Api-Secret-Token" // as a webhook's secret_token comes
	AttemptHeader  = "X-Demo-Attempt"                  // the number of this post
	DeadlineHeader = "X-Demo-Deadline"                 // unix time in nanoseconds; later than that nobody waits for the answer
)

// CronName is the name of the election whose winner sends the heartbeats.
const CronName = "demo-cron"

// Config is the first line on a replica's standard input. It comes that way, and not as
// arguments, because other users can read arguments and it may hold a password.
type Config struct {
	ID          string          `json:"id"`          // the coordinator's ReplicaID; a restarted process has it again
	Incarnation string          `json:"incarnation"` // under which the store knows this process
	Coordinator string          `json:"coordinator"` // "etcd" or "none"
	Etcd        connect.Options `json:"etcd"`
	TTL         time.Duration   `json:"ttl"`
	WorkMin     time.Duration   `json:"work_min"` // how long a handler works
	WorkMax     time.Duration   `json:"work_max"`
	StoreURL    string          `json:"store_url"`
	Secret      string          `json:"secret"`
	Verbose     bool            `json:"verbose"`
}

// Message is a line on a replica's standard output. One of the fields is set. It is for the reader
// of the table, and no judgement rests on it.
type Message struct {
	Ready string `json:"ready,omitempty"` // the webhook's URL: posts are taken from now on
	Event string `json:"event,omitempty"` // something worth telling
	Leads *bool  `json:"leads,omitempty"` // it leads now, or it does not any more
	Fatal string `json:"fatal,omitempty"` // why the process exits
}

// talk writes messages, one a line.
type talk struct {
	mu  sync.Mutex // one line at a time
	out io.Writer
}

func (t *talk) leads(now bool) { t.say(Message{Leads: &now}) }

// say does not report errors: the parent has gone then, and the end of standard input tells it.
func (t *talk) say(m Message) {
	line, err := json.Marshal(m)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.out.Write(append(line, '\n'))
}

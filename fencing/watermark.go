package fencing

import "sync"

// Watermark is the protected resource's side of fencing: it remembers, for each key, the highest
// token it has admitted, and refuses every lower one. Work of a holder that lost the key, and does
// not know it yet, is refused from the moment its successor was first seen. The zero value is ready
// for use, by several goroutines at once. It must not be copied.
//
// The order matters: admit, then write, both under the same lock or in the same transaction of the
// store. With a gap between the two, a newer holder can be admitted and write in the gap, and the
// older write lands on top of it.
//
// A Watermark lives in memory, so it protects what lives in the same memory. A store that outlives
// the process must keep the highest token as durable as the data, best in the same row:
// UPDATE … SET fence = $1 … WHERE id = $2 AND fence <= $1, where no row means refused. Data in the
// same etcd is best protected with Guard.
//
// It costs one map entry for each key ever admitted: the key and about 50 bytes.
type Watermark struct {
	mu      sync.Mutex // guards highest
	highest map[string]Token
}

// Admit remembers t as the highest token of key. It refuses, with a *StaleTokenError, a token below
// the highest one admitted before, and one that is never granted: 0 or negative. The highest itself
// is admitted again: one holder writes many times.
func (w *Watermark) Admit(key string, t Token) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if highest := w.highest[key]; t <= 0 || t < highest {
		return &StaleTokenError{Key: key, Token: t, Highest: highest}
	}
	if w.highest == nil {
		w.highest = make(map[string]Token)
	}
	w.highest[key] = t
	return nil
}

// Highest is the highest token admitted for key, 0 if there is none.
func (w *Watermark) Highest(key string) Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.highest[key]
}

// Forget drops what is remembered of key, and with it the protection: afterwards any token is
// admitted again, also a stale one. It is for keys whose data has been deleted for good.
func (w *Watermark) Forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.highest, key)
}

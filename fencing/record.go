package fencing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// recordValue is the value of a lease key. It is a wire format: fields may be added, none may
// change its meaning.
type recordValue struct {
	Owner string `json:"owner"`
	TTLms int64  `json:"ttl_ms"` // as asked for, rounded up
	// Lease is the etcd lease that was granted for this very write, in hex. A record that hangs on
	// another one was moved by hand, and whatever else hangs there is none of our business.
	Lease string `json:"lease"`
}

// record is what stands under a lease key at one moment.
type record struct {
	etcdKey string
	token   Token // create revision, 0 when there is no key
	mod     int64 // mod revision, 0 when there is no key
	lease   clientv3.LeaseID

	// Zero when the value cannot be read.
	owner string
	ttl   time.Duration
	alone bool // nothing but this record can hang on lease
}

func (r record) absent() bool { return r.mod == 0 }

func (r record) heldBy(owner string) bool { return !r.absent() && r.owner == owner }

func newRecord(etcdKey string, answer *clientv3.GetResponse) record {
	r := record{etcdKey: etcdKey}
	if len(answer.Kvs) == 0 {
		return r
	}
	kv := answer.Kvs[0]
	r.token, r.mod, r.lease = Token(kv.CreateRevision), kv.ModRevision, clientv3.LeaseID(kv.Lease)
	var v recordValue
	if json.Unmarshal(kv.Value, &v) != nil || keys.Check("owner", v.Owner) != nil {
		return r
	}
	r.owner = v.Owner
	if ttl := time.Duration(v.TTLms) * time.Millisecond; ttl > 0 && ttl/time.Millisecond == time.Duration(v.TTLms) {
		r.ttl = ttl
	}
	r.alone = r.lease != 0 && v.Lease == leaseHex(r.lease)
	return r
}

func leaseHex(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// encode is the value for a write that hangs on lease.
func encode(owner string, ttl time.Duration, lease clientv3.LeaseID) string {
	ms := int64((ttl + time.Millisecond - 1) / time.Millisecond)
	b, err := json.Marshal(recordValue{Owner: owner, TTLms: ms, Lease: leaseHex(lease)})
	if err != nil {
		panic(err) // two strings and a number
	}
	return string(b)
}

// look reads what stands under key now.
func (p *EtcdLeases) look(ctx context.Context, key string) (record, error) {
	etcdKey := p.keys.Lease(key)
	answer, err := p.client.Get(ctx, etcdKey)
	if err != nil {
		return record{}, err
	}
	return newRecord(etcdKey, answer), nil
}

var (
	errUnreadable = errors.New("its record in etcd cannot be read")
	errEndless    = errors.New("its record in etcd hangs on no etcd lease and never ends")
)

// held is the error for a rival of whoever holds. What this package cannot have written is logged
// once; it is never removed, because somebody may hold by it who knows more than we do.
func (p *EtcdLeases) held(key string, r record) error {
	e := &HeldError{Key: key, Owner: r.owner, Token: r.token, TTL: r.ttl}
	switch {
	case r.owner == "":
		e.Err = errUnreadable
	case r.lease == 0:
		e.Err = errEndless
	default:
		return e
	}
	e.Err = fmt.Errorf("%w; if nobody is meant to hold it, delete %s with etcdctl", e.Err, r.etcdKey)
	p.warnOnce(key, r, e)
	return e
}

// maxWarned bounds the memory of what was logged.
const maxWarned = 1000

func (p *EtcdLeases) warnOnce(key string, r record, err error) {
	p.mu.Lock()
	_, known := p.warned[r.etcdKey]
	if !known {
		if len(p.warned) >= maxWarned {
			clear(p.warned)
		}
		p.warned[r.etcdKey] = struct{}{}
	}
	p.mu.Unlock()
	if !known {
		p.log.Warn("a lease key holds what this package does not write", "key", key, "fence", r.token, "err", err)
	}
}

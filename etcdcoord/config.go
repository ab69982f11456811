package etcdcoord

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// Config of a Coordinator. The zero value is usable.
type Config struct {
	// ReplicaID names this process among its peers: 1 to 512 bytes of UTF-8. Two live processes
	// with one id are refused. Default: host, process id and a random suffix.
	ReplicaID string
	// Prefix of everything in etcd, with or without its final slash; several bots share one etcd by
	// prefix. Default "/etcdcoord/".
	Prefix string

	// SessionTTL is how long a dead replica can keep its places. It is rounded up to whole seconds,
	// and etcd may raise it (to 2 s with its default settings); what etcd granted is what counts.
	// Default, also for zero or less: 10 s.
	SessionTTL time.Duration
	// RenewEvery is the pause between two renewals. Default SessionTTL / 3.
	RenewEvery time.Duration
	// SafetyMargin is how much earlier than etcd this replica stops believing in its session.
	// Default SessionTTL / 6, at least 500 ms.
	SafetyMargin time.Duration
	// HistoryTTL is how long PreviousHolder outlives an idle key. Default 24 h.
	HistoryTTL time.Duration
	// MaxHold ends a turn that is held for longer. Default 0: no limit.
	MaxHold time.Duration
	// RequestTimeout bounds a single request to etcd when the caller's context has no deadline. It
	// never bounds the waiting in AcquireTurn and Lead. Default 5 s.
	RequestTimeout time.Duration

	// Logger gets Debug for renewals, Info for sessions and leaderships, Warn for whatever is lost,
	// Error for what should be impossible. Default: discard.
	Logger *slog.Logger
	// Hooks are optional functions for metrics.
	Hooks Hooks
}

// The defaults of Config.
const (
	DefaultPrefix         = "/etcdcoord/"
	DefaultSessionTTL     = 10 * time.Second
	DefaultHistoryTTL     = 24 * time.Hour
	DefaultRequestTimeout = 5 * time.Second
	minSafetyMargin       = 500 * time.Millisecond
)

// complete fills in the defaults and checks the fields, also against each other.
func (cfg Config) complete() (Config, error) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RenewEvery", cfg.RenewEvery},
		{"SafetyMargin", cfg.SafetyMargin},
		{"HistoryTTL", cfg.HistoryTTL},
		{"MaxHold", cfg.MaxHold},
		{"RequestTimeout", cfg.RequestTimeout},
	} {
		if d.value < 0 {
			return cfg, &ConfigError{d.field, fmt.Errorf("%v is negative", d.value)}
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"SessionTTL", cfg.SessionTTL}, {"HistoryTTL", cfg.HistoryTTL}} {
		if d.value > maxTTL {
			return cfg, &ConfigError{d.field, fmt.Errorf("%v is more than etcd allows (%v)", d.value, maxTTL)}
		}
	}
	cfg = cfg.withDefaults()
	if err := keys.Check("replica id", cfg.ReplicaID); err != nil {
		return cfg, &ConfigError{"ReplicaID", err}
	}
	if err := checkPrefix(cfg.Prefix); err != nil {
		return cfg, &ConfigError{"Prefix", err}
	}
	return cfg, cfg.checkDurations()
}

func (cfg Config) withDefaults() Config {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&cfg.SessionTTL, DefaultSessionTTL)
	// Leases last whole seconds. Up, never down: the user asked for at least that.
	cfg.SessionTTL = (cfg.SessionTTL + time.Second - 1).Truncate(time.Second)
	or(&cfg.RenewEvery, cfg.SessionTTL/3)
	or(&cfg.SafetyMargin, max(cfg.SessionTTL/6, minSafetyMargin))
	or(&cfg.HistoryTTL, max(DefaultHistoryTTL, cfg.SessionTTL))
	or(&cfg.RequestTimeout, DefaultRequestTimeout)
	if cfg.ReplicaID == "" {
		cfg.ReplicaID = defaultReplicaID()
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(cfg.Prefix, "/") {
		cfg.Prefix += "/"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// maxTTL is about 263 years: etcd accepts a lease of 9,000,000,000 seconds, and the leases of holder
// records live a little longer than HistoryTTL.
const maxTTL = 8_300_000_000 * time.Second

// checkDurations looks at the durations together. Each error names both values.
func (cfg Config) checkDurations() error {
	refuse := func(field, format string, args ...any) error {
		return &ConfigError{field, fmt.Errorf(format, args...)}
	}
	believed := cfg.SessionTTL - cfg.SafetyMargin
	switch {
	case cfg.SafetyMargin >= cfg.SessionTTL:
		return refuse("SafetyMargin", "%v must be less than SessionTTL %v", cfg.SafetyMargin, cfg.SessionTTL)
	case cfg.RenewEvery >= believed:
		return refuse("RenewEvery", "%v must be less than SessionTTL - SafetyMargin = %v, or the session ends before it is renewed", cfg.RenewEvery, believed)
	case cfg.HistoryTTL < cfg.SessionTTL:
		return refuse("HistoryTTL", "%v must not be less than SessionTTL %v", cfg.HistoryTTL, cfg.SessionTTL)
	}
	return nil
}

func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > keys.MaxNameBytes:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(prefix), keys.MaxNameBytes)
	case !utf8.ValidString(prefix):
		return errors.New("is not valid UTF-8")
	case strings.IndexByte(prefix, 0) >= 0:
		return errors.New("contains a NUL byte")
	}
	return nil
}

func defaultReplicaID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "replica"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), randomHex(4))
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails, says crypto/rand
	return hex.EncodeToString(b)
}

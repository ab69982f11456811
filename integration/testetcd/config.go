package testetcd

import (
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Config says what to start. The zero value is one member with etcd's own timing, in a temporary
// directory.
type Config struct {
	// Members is 1 (the default) or 3.
	Members int

	// Dir keeps the data, one directory per member. Empty: a temporary directory that Close
	// removes. A directory given here is never removed, and must not be used by two clusters at a
	// time. A single member goes on with the data it finds there; three members refuse to start on
	// data of an earlier cluster.
	Dir string

	// FastTicks sets a heartbeat of 10 ms and an election timeout of 100 ms (etcd: 100 ms and
	// 1 s). Leases may then be as short as one second instead of two, and a new leader is found
	// ten times faster. On a starved machine three members with fast ticks may change their leader
	// without any fault.
	FastTicks bool

	// UnsafeNoFsync lets etcd answer before its data is on the disk. It makes tests faster and
	// loses data only when the machine dies, never when a member is stopped.
	UnsafeNoFsync bool

	// QuotaBytes is the size of the database at which etcd raises NOSPACE; 0 means etcd's default.
	QuotaBytes int64

	// AuthTokenTTL is the life of an authentication token, in whole seconds, rounded up; 0 means
	// etcd's default of five minutes.
	AuthTokenTTL time.Duration

	// StartTimeout bounds the wait for a member to serve; 0 means one minute.
	StartTimeout time.Duration

	// Logger gets what etcd logs; nil means that nothing is logged.
	Logger *zap.Logger
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Members == 0 {
		cfg.Members = 1
	}
	if cfg.Members != 1 && cfg.Members != maxMembers {
		return cfg, fmt.Errorf("testetcd: Members is %d, use 1 or %d", cfg.Members, maxMembers)
	}
	if cfg.AuthTokenTTL < 0 || cfg.StartTimeout < 0 || cfg.QuotaBytes < 0 {
		return cfg, fmt.Errorf("testetcd: AuthTokenTTL (%v), StartTimeout (%v) and QuotaBytes (%d) must not be negative",
			cfg.AuthTokenTTL, cfg.StartTimeout, cfg.QuotaBytes)
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return cfg, nil
}

// Option changes the Config that New and Main start from (one member, no fsync).
type Option func(*Config)

// ThreeMembers is the Option for a cluster of three.
func ThreeMembers(cfg *Config) { cfg.Members = 3 }

// FastTicks is the Option for Config.FastTicks.
func FastTicks(cfg *Config) { cfg.FastTicks = true }

package connect

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Defaults of the flags.
const (
	DefaultEndpoint = "127.0.0.1:2379"
	DefaultPrefix   = "/etcdcoord/"
)

// Options is where etcd is and who we are there. It is plain data: it can be sent to another process.
type Options struct {
	Endpoints          []string      `json:"endpoints"`
	Prefix             string        `json:"prefix"`
	CACert             string        `json:"cacert,omitempty"`
	Cert               string        `json:"cert,omitempty"`
	Key                string        `json:"key,omitempty"`
	InsecureSkipVerify bool          `json:"insecure_skip_tls_verify,omitempty"`
	User               string        `json:"user,omitempty"`
	Password           string        `json:"password,omitempty"`
	DialTimeout        time.Duration `json:"dial_timeout"`
	CommandTimeout     time.Duration `json:"command_timeout"`
}

// Bind adds the flags to set. Values come into o when set is parsed, and from the environment
// in FromEnvironment.
func (o *Options) Bind(set *pflag.FlagSet) {
	set.StringSliceVar(&o.Endpoints, "endpoints", []string{DefaultEndpoint}, "etcd `endpoints`, separated by commas")
	set.StringVar(&o.Prefix, "prefix", DefaultPrefix, "`prefix` of all keys; several bots share one etcd by prefix")
	set.StringVar(&o.CACert, "cacert", "", "verify the certificate of etcd with this CA `file`")
	set.StringVar(&o.Cert, "cert", "", "client certificate `file`")
	set.StringVar(&o.Key, "key", "", "client key `file`")
	set.BoolVar(&o.InsecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify the certificate of etcd (for tests)")
	set.StringVar(&o.User, "user", "", "`username[:password]` for etcd")
	set.StringVar(&o.Password, "password", "", "`password` for etcd; --user is then the name alone")
	set.DurationVar(&o.DialTimeout, "dial-timeout", 2*time.Second, "how long one attempt to connect may take")
	set.DurationVar(&o.CommandTimeout, "command-timeout", 4*time.Second, "how long to wait for the first answer of etcd")
}

// EnvName is the environment variable of a flag.
func EnvName(flag string) string {
	return "ETCDCOORD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnvironment sets each flag of Bind that was not given from its environment variable.
func FromEnvironment(set *pflag.FlagSet) error {
	var names Options
	ours := pflag.NewFlagSet("", pflag.ContinueOnError)
	names.Bind(ours)
	var failed error
	ours.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(EnvName(f.Name))
		if value == "" || set.Lookup(f.Name) == nil || set.Changed(f.Name) {
			return
		}
		if err := set.Set(f.Name, value); err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", EnvName(f.Name), err)
		}
	})
	return failed
}

// Check refuses what cannot be, before anything is tried.
func (o *Options) Check() error {
	if len(o.Endpoints) == 0 {
		return fmt.Errorf("--endpoints is empty")
	}
	for _, endpoint := range o.Endpoints {
		if strings.TrimSpace(endpoint) == "" {
			return fmt.Errorf("--endpoints %q has an empty endpoint", strings.Join(o.Endpoints, ","))
		}
	}
	if o.Prefix == "" {
		return fmt.Errorf("--prefix is empty")
	}
	if (o.Cert == "") != (o.Key == "") {
		return fmt.Errorf("--cert and --key go together: one of them is missing")
	}
	if o.DialTimeout <= 0 || o.CommandTimeout <= 0 {
		return fmt.Errorf("--dial-timeout %v and --command-timeout %v must be more than 0", o.DialTimeout, o.CommandTimeout)
	}
	if o.User == "" && o.Password != "" {
		return fmt.Errorf("--password without --user")
	}
	if o.NeedsPassword() {
		// The client would not complain, and ask as nobody.
		return fmt.Errorf("--user %s needs a password: --password, or --user name:password", o.User)
	}
	_, err := o.tls() // the files must be there
	return err
}

// NeedsPassword: a user is given and no password.
func (o *Options) NeedsPassword() bool {
	return o.User != "" && o.Password == "" && !strings.Contains(o.User, ":")
}

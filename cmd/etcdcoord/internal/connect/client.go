package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// ErrUnreachable matches every *UnreachableError.
var ErrUnreachable = errors.New("etcd unreachable")

// UnreachableError says that etcd did not answer, or answered that we may not ask.
type UnreachableError struct {
	Endpoints []string
	Err       error
}

// Error names the endpoints and what to do.
func (e *UnreachableError) Error() string {
	where := strings.Join(e.Endpoints, ",")
	if backend.Classify(e.Err) == backend.Denied {
		return fmt.Sprintf("etcd at %s refuses: %v (check --user, --password and the rights of that user under --prefix)", where, e.Err)
	}
	return fmt.Sprintf("etcd does not answer at %s: %v (is it running there, and is --endpoints right?)", where, e.Err)
}

// Unwrap gives what the last attempt failed with.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Is matches ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// Client makes a client. It makes no request: a dead endpoint is found by the first one, or by Ping.
func (o *Options) Client() (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: o.Endpoints, DialTimeout: o.DialTimeout, Logger: zap.NewNop()}
	cfg.Username, cfg.Password = o.User, o.Password
	if name, password, both := strings.Cut(o.User, ":"); both && o.Password == "" {
		cfg.Username, cfg.Password = name, password
	}
	var err error
	if cfg.TLS, err = o.tls(); err != nil {
		return nil, err
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		// With a password the client asks for its first token here.
		return nil, &UnreachableError{Endpoints: o.Endpoints, Err: err}
	}
	return client, nil
}

// Ping asks etcd for a key under the prefix and waits at most CommandTimeout for the answer. It
// asks twice, because one endpoint of several may take the question and never answer.
func (o *Options) Ping(ctx context.Context, client *clientv3.Client) error {
	var last error
	for range 2 {
		try, cancel := context.WithTimeout(ctx, o.CommandTimeout/2)
		_, last = client.Get(try, o.Prefix, clientv3.WithCountOnly())
		cancel()
		if last == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return &UnreachableError{Endpoints: o.Endpoints, Err: last}
}

// tls is nil when no TLS flag is given and no endpoint is https.
func (o *Options) tls() (*tls.Config, error) {
	https := false
	for _, endpoint := range o.Endpoints {
		https = https || strings.HasPrefix(endpoint, "https://")
	}
	if !https && o.CACert == "" && o.Cert == "" && !o.InsecureSkipVerify {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.InsecureSkipVerify}
	if o.CACert != "" {
		pem, err := os.ReadFile(o.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: %s holds no certificate in PEM form", o.CACert)
		}
	}
	if o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

package main

import (
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// secured is an etcd that wants a client certificate and a password.
type secured struct {
	endpoint, cert, key string
}

func newSecured(t *testing.T) secured {
	t.Helper()
	info, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1:0"}, 1, x509.ExtKeyUsageClientAuth)
	require.NoError(t, err)
	info.TrustedCAFile, info.ClientCertAuth = info.CertFile, true

	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ClientTLSInfo = info
	cfg.BcryptCost = 4 // passwords need not be safe here; the default takes a second under the race detector
	free := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready")
	}
	s := secured{"https://" + etcd.Clients[0].Addr().String(), info.CertFile, info.KeyFile}
	s.setUpUsers(t, info)
	return s
}

// setUpUsers: ann may read and write under /bots/ and nothing else.
func (s secured) setUpUsers(t *testing.T, info transport.TLSInfo) {
	t.Helper()
	tls, err := info.ClientConfig()
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, TLS: tls, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	ctx := t.Context()
	for _, role := range []string{"root", "bots"} {
		_, err = client.RoleAdd(ctx, role)
		require.NoError(t, err)
	}
	_, err = client.RoleGrantPermission(ctx, "bots", "/bots/", clientv3.GetPrefixRangeEnd("/bots/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	for user, role := range map[string]string{"root": "root", "ann": "bots"} {
		_, err = client.UserAdd(ctx, user, "secret-of-"+user)
		require.NoError(t, err)
		_, err = client.UserGrantRole(ctx, user, role)
		require.NoError(t, err)
	}
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err)
}

func TestTheDemoRunsOnAnEtcdWithTLSAndUsers(t *testing.T) {
	s := newSecured(t)
	demo := func(args ...string) result {
		return command(t, "", append([]string{"demo", "--json", "--faults=none", "--messages=30", "--endpoints", s.endpoint}, args...)...)
	}
	tls := []string{"--cacert", s.cert, "--cert", s.cert, "--key", s.key}
	with := func(more ...string) []string { return append(append([]string(nil), tls...), more...) }

	requireOK(t, demo(with("--prefix=/bots/", "--user=ann:secret-of-ann")...))

	for name, args := range map[string][]string{
		"no CA":           {"--cert", s.cert, "--key", s.key, "--user=ann:secret-of-ann"},
		"no certificate":  {"--cacert", s.cert, "--user=ann:secret-of-ann"},
		"wrong password":  with("--prefix=/bots/", "--user=ann", "--password=guess"),
		"no user":         with("--prefix=/bots/"),
		"not her prefix":  with("--prefix=/others/", "--user=ann", "--password=secret-of-ann"),
		"endpoint is not": {"--endpoints=127.0.0.1:1", "--cacert", s.cert},
	} {
		began := time.Now()
		r := demo(args...)
		require.Equal(t, exitUnreachable, r.code, "%s: %s", name, r.stderr)
		require.Less(t, time.Since(began), 5*time.Second, name)
		require.Contains(t, r.stderr, "etcd ", name)
		require.Empty(t, r.stdout, name)
	}
	for name, args := range map[string][]string{
		"no such file":   {"--cacert=/does/not/exist"},
		"no certificate": {"--cacert", s.key},
	} {
		r := demo(args...)
		require.Equal(t, exitUsage, r.code, "%s: %s", name, r.stderr)
		require.Contains(t, r.stderr, "--cacert", name)
	}
}

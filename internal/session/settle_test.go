package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/session"
)

// guarded is a put as tickets and election make it: it can be applied only while the registration is at mod.
func guarded(t *testing.T, client *clientv3.Client, s *session.Session, key string, mod int64) bool {
	t.Helper()
	registration, _ := s.Registration()
	answer, err := client.Txn(t.Context()).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(registration), "=", mod)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))).Commit()
	require.NoError(t, err)
	return answer.Succeeded
}

func TestWhatIsSettledAsAbsentCannotComeLater(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	_, mod := s.Registration()
	created, err := s.Settle(t.Context(), prefix+"late", mod, false)
	require.NoError(t, err)
	require.Zero(t, created)
	require.False(t, guarded(t, client, s, prefix+"late", mod), "the late request")
	_, now := s.Registration()
	require.Greater(t, now, mod)
	require.True(t, guarded(t, client, s, prefix+"late", now), "the next one")
}

func TestSettleFindsWhatWasApplied(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	_, mod := s.Registration()
	require.True(t, guarded(t, client, s, prefix+"applied", mod))
	there, err := client.Get(t.Context(), prefix+"applied")
	require.NoError(t, err)
	for _, final := range []bool{false, true} {
		created, err := s.Settle(t.Context(), prefix+"applied", mod, final)
		require.NoError(t, err)
		require.Equal(t, there.Kvs[0].CreateRevision, created)
	}
}

func TestOneBumpSettlesAll(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	_, mod := s.Registration()
	for _, key := range []string{"a", "b", "c"} {
		created, err := s.Settle(t.Context(), prefix+key, mod, false)
		require.NoError(t, err)
		require.Zero(t, created)
	}
	registration, now := s.Registration()
	answer, err := client.Get(t.Context(), registration)
	require.NoError(t, err)
	require.Equal(t, int64(2), answer.Kvs[0].Version, "put once by Open and once by Settle")
	require.Equal(t, answer.Kvs[0].ModRevision, now)
}

func TestAFinalPutIsSettledWithoutABump(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	_, mod := s.Registration()
	created, err := s.Settle(t.Context(), prefix+"refused", mod, true)
	require.NoError(t, err)
	require.Zero(t, created)
	_, now := s.Registration()
	require.Equal(t, mod, now)
}

// Another process may have registered under the id after ours was removed by hand. Its registration
// must never be mistaken for ours, nor be put over.
func TestARegistrationOfAnotherSessionEndsThisOne(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	registration, mod := s.Registration()
	_, err := client.Delete(t.Context(), registration)
	require.NoError(t, err)
	other, err := client.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = client.Put(t.Context(), registration, "another's", clientv3.WithLease(other.ID))
	require.NoError(t, err)

	_, err = s.Settle(t.Context(), prefix+"key", mod, false)
	require.ErrorIs(t, err, session.ErrLost)
	require.ErrorIs(t, s.Check(), session.ErrLost)
	answer, err := client.Get(t.Context(), registration)
	require.NoError(t, err)
	require.Equal(t, "another's", string(answer.Kvs[0].Value))
	_, err = client.Revoke(t.Context(), other.ID)
	require.NoError(t, err)
}

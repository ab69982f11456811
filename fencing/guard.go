package fencing

import clientv3 "go.etcd.io/etcd/client/v3"

// Guard is the compare that holds while etcdKey is the very key that was created under t. Put it
// into the If of an etcd transaction, and the transaction is applied only while the holder of t
// still holds: no watermark is needed for what lives in the same etcd.
func Guard(etcdKey string, t Token) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(etcdKey), "=", int64(t))
}

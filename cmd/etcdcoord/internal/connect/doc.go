// Package connect turns the flags that all commands share into an etcd client. The flags are
// named as in etcdctl. Each also has an environment variable: --cacert is ETCDCOORD_CACERT.
package connect

// Package faults does to the replicas, one after the other, what the demo is about.
//
//	kill    SIGKILL in the middle of a write, the leader if possible. A fresh process takes over
//	        the name, which the coordinator allows when the dead one's session has expired
//	freeze  SIGSTOP in the middle of a write, until the TTL is over and a rival has handled the
//	        chat's next update; then SIGCONT. The write goes on where it was, with its old fence
//	roll    SIGTERM: graceful stop and replacement
//
// Kill and freeze wait for a moment in which they hurt: the store has been told of a write, has
// not got it yet, and an update of the same chat waits at another replica. If no such moment comes
// in time, any replica is taken.
package faults

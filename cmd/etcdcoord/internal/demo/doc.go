// Package demo shows the coordinator at work: an etcd, replica processes, a chat platform that
// posts to them, faults, and a judge.
//
//	telegram  reads and makes updates
//	platform  posts them, in order per chat, round robin over the replicas
//	fleet     runs the replica processes, and kills, freezes and stops them
//	replica   is such a process: webhook, Reserve, 2xx, turn, handler
//	ledger    is the store that handlers write to; it checks the fence
//	faults    chooses the moments
//	journal   is the record of all of it, written by the parent with one clock
//	judge     reads the record
//	screen    shows it meanwhile
//
// # What is promised
//
// The verdict rests on what the platform, the store and the maker of faults wrote down. Every
// acknowledged update is handled once and in the order of its chat, except those in the hands of
// a replica when it was killed, or frozen for longer than its TTL: the coordinator orders, it does
// not store. How the awkward case is treated, a post that a frozen replica took and that was
// therefore posted again, is said in packages replica and judge.
//
// # What is not
//
// Nothing is said about speed; the pace is chosen so that the faults fall into traffic. On a
// machine that is stopped for longer than the TTL all replicas lose their sessions without a fault
// to blame, and the judge rightly finds updates lost.
//
// # When something fails
//
//	etcd does not answer at the start      an error that names the endpoints, within 5 s
//	etcd goes away during the run          replicas answer 503 and the platform posts again; sessions
//	                                       that end count as violations, no fault explains them
//	a replica ends by itself               the run ends with an error, after a verdict so far
//	nothing moves for a long time          the run ends; what is not handled is lost
//	Ctrl-C                                 faults and posts end, replicas finish and stop, verdict so far
//	the parent is killed                   the replicas end at once; see package fleet
package demo

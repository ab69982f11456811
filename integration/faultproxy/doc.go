// Package faultproxy is a TCP proxy that misbehaves on request. A test puts it before a client or
// a peer port of etcd and then holds, loses, delays, cuts or refuses what goes through.
//
// Every verb works at once, on connections that are open and on those to come, and may be called
// from any goroutine. The bytes of a connection are never reordered and never corrupted.
//
//	Hold          nothing is lost: what arrives is kept and delivered by Resume, in order
//	HoldExisting  the same for connections that are open now; later ones pass
//	Deliver       lets a number of held bytes through, and goes on holding
//	Drop          a black hole: connections are accepted, what arrives is lost
//	Delay         adds latency, without limiting the throughput
//	Cut           resets the open connections
//	Refuse        resets new connections right after they are accepted
//	Heal          ends all of the above
//
// A TCP stream that lost bytes cannot go on, so the end of Drop resets the connections that lost
// some; those that lost nothing live. Real networks behave like Hold when they heal early and
// like Drop when they heal late.
//
// The counters Received and Forwarded, with WaitReceived and WaitForwarded, tell a test that a
// request has come through or is being held, so that it need not sleep.
//
// The target is dialled once for each connection, when it is accepted, so it may be stopped,
// restarted and replaced (SetTarget). If it cannot be reached the connection is reset.
//
// Not promised: a verb does not take back bytes whose delivery had begun when it was called. What
// one read took from the socket is forwarded as one piece, so pieces do not follow the writes of
// the sender exactly.
package faultproxy

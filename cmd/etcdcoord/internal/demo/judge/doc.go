// Package judge reads a run's journal and says whether the coordinator kept its word.
//
// It uses what the platform, the store and the maker of faults wrote down, never what a replica
// says. It counts:
//
//	handled        updates with an accepted write that is still in the ledger
//	skipped        updates that a replica had acknowledged and not finished when it was killed, or
//	               frozen for longer than its TTL. An update without an accepted write whose
//	               replica met no such fault is lost, not skipped
//	lost           acknowledged, and neither handled nor rightly skipped; also a write that a
//	               later one, made from an older copy of the ledger, wiped out
//	duplicates     accepted writes of an update beyond the first, and handlings that were begun for
//	               a second acknowledged post of an update, even if the ledger stopped them
//	out_of_order   accepted handlings that began, or wrote, after a later update of their chat did
//	overlaps       accepted handlings that began while another one of the chat was not finished; a
//	               refused write counts as well, up to the moment its replica was frozen if it was:
//	               nobody can tell a process that does not run. So do two leaders at a time
//	stale writes   by the fence: lower than one that was admitted before for that chat. Without
//	               fences (--coordinator none): made from an older copy than the one it replaces
//	max_stall      how long a chat with acknowledged updates went without a handling's begin or end
//
// So sent = handled + skipped + lost, and a run is ok when lost, duplicates, out_of_order,
// overlaps and stale_writes_accepted are 0, and something was sent.
//
// The doubtful case is the post without an answer: a frozen replica may have taken it, and it
// goes to another one. The replica drops a post whose deadline has passed, both before and after
// it reserves. Should a stall fall exactly between that look and the 2xx, two replicas have the
// update; then the second one to get the turn finds it in the ledger and writes nothing, as a bot
// must anyway with an at-least-once platform. This is no excuse for two acknowledged posts: these
// are duplicates whatever the ledger did.
package judge

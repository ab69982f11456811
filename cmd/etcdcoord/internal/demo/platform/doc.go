// Package platform plays the chat platform: it posts updates to the replicas' webhooks.
//
// Replicas take turns, post by post. A chat's updates go out in order, the next one when the one
// before has its 2xx; different chats go out in parallel. A post without a 2xx by its deadline
// goes to the next replica. The 2xx comes when a place is reserved, not when the update is handled,
// so several updates of a chat are usually under way, at different replicas.
//
// How fast it goes is decided by a Pace, so that the faults fall into the traffic whatever the
// machine's speed; bursts (neighbours of one chat) go out together.
package platform

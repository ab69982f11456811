// Package telegram reads and makes the updates that the demo's platform posts.
//
// It knows of the Bot API what is needed to put an update into its chat's queue: update_id, the
// kind and the chat id. Everything else is carried as it came.
package telegram

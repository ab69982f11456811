package telegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Update is one update of the Bot API.
type Update struct {
	ID   int64
	Kind string // "message", "callback_query", …; "" for an update that carries nothing
	Chat string // the chat id in decimal; "" for a kind that has no chat: it needs no turn
	Raw  []byte // the JSON object as it came, without the line's end
}

// ErrMalformed matches every *MalformedError.
var ErrMalformed = errors.New("malformed update")

// MalformedError says why a line is no update.
type MalformedError struct{ Reason string }

// Error names the reason.
func (e *MalformedError) Error() string { return "malformed update: " + e.Reason }

// Is matches ErrMalformed.
func (e *MalformedError) Is(target error) bool { return target == ErrMalformed }

func malformed(format string, args ...any) error {
	return &MalformedError{Reason: fmt.Sprintf(format, args...)}
}

// withChat are the kinds that always have a chat of their own. One of these without a chat is
// malformed: to handle it without a turn would break the order of a chat that is not known.
var withChat = map[string]bool{
	"message": true, "edited_message": true, "channel_post": true, "edited_channel_post": true,
	"business_message": true, "edited_business_message": true, "deleted_business_messages": true,
	"message_reaction": true, "message_reaction_count": true,
	"my_chat_member": true, "chat_member": true, "chat_join_request": true,
	"chat_boost": true, "removed_chat_boost": true,
}

// payload is where the kinds keep their chat. A kind that is not known yet is searched in the
// same places, so that a newer Bot API does not lose the order of its chats.
type payload struct {
	Chat    *chat `json:"chat"` // messages, members, boosts, reactions
	Message *struct {
		Chat *chat `json:"chat"`
	} `json:"message"` // callback_query; absent when the button belongs to an inline message
	UserChatID *int64 `json:"user_chat_id"` // business_connection; of a join request it is another chat, and Chat comes first
}

type chat struct {
	ID *int64 `json:"id"`
}

func (p payload) chatID() (id *int64, has bool) {
	switch {
	case p.Chat != nil:
		return p.Chat.ID, true
	case p.Message != nil && p.Message.Chat != nil:
		return p.Message.Chat.ID, true
	}
	return p.UserChatID, p.UserChatID != nil
}

// Parse reads one update. Its error is a *MalformedError.
func Parse(line []byte) (Update, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Update{}, malformed("no JSON object: %v", err)
	}
	var id *int64
	if raw, ok := fields["update_id"]; ok {
		if err := json.Unmarshal(raw, &id); err != nil {
			return Update{}, malformed("update_id %.40s is no integer", raw)
		}
	}
	if id == nil {
		return Update{}, malformed("it has no update_id")
	}
	u := Update{ID: *id, Raw: slices.Clone(line)}
	delete(fields, "update_id")
	kinds := make([]string, 0, len(fields))
	for kind := range fields {
		kinds = append(kinds, kind)
	}
	if slices.Sort(kinds); len(kinds) > 1 {
		return Update{}, malformed("at most one kind is allowed, it has %q", kinds)
	}
	for _, kind := range kinds {
		u.Kind = kind
		var err error
		if u.Chat, err = chatOf(kind, fields[kind]); err != nil {
			return Update{}, err
		}
	}
	return u, nil
}

func chatOf(kind string, raw json.RawMessage) (string, error) {
	var p *payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", malformed("%s: %v", kind, err)
	}
	if p == nil {
		return "", malformed("%s is null", kind)
	}
	id, has := p.chatID()
	switch {
	case id != nil:
		return strconv.FormatInt(*id, 10), nil
	case has:
		return "", malformed("the chat of %s has no id", kind)
	case withChat[kind]:
		return "", malformed("%s has no chat", kind)
	}
	return "", nil
}

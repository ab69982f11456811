package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// callHeader carries the Call of a Write.
const callHeader = "X-Demo-Call"

// Client is a replica's way to the store. It has no timeouts of its own: when the parent is gone,
// so is the replica, and a frozen replica must not wake up to a deadline that has passed.
type Client struct {
	url, secret string
	http        *http.Client
}

// NewClient reaches the store at url.
func NewClient(url, secret string) *Client {
	return &Client{url: url, secret: secret, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		// How long to wait for "100 Continue" before the body goes out unasked: never.
		ExpectContinueTimeout: 24 * time.Hour,
	}}}
}

// Begin reads the ledger of c.Chat. A stale fence gives an error that wraps fencing.ErrStaleToken.
func (l *Client) Begin(ctx context.Context, c Call) (View, error) {
	var view View
	err := l.post(ctx, "/begin", c, &view)
	return view, err
}

// Write replaces the ledger. A stale fence gives an error that wraps fencing.ErrStaleToken.
func (l *Client) Write(ctx context.Context, c Call, updates []int64) error {
	call, err := json.Marshal(c)
	if err != nil {
		return err
	}
	body, err := json.Marshal(updates)
	if err != nil {
		return err
	}
	return l.do(ctx, "/write", body, nil, func(h http.Header) {
		h.Set("Expect", "100-continue")
		h.Set(callHeader, string(call))
	})
}

// Already tells that c.Update was found in the ledger.
func (l *Client) Already(ctx context.Context, c Call) error { return l.post(ctx, "/already", c, nil) }

// GaveUp tells that c.Update will not be handled by this replica.
func (l *Client) GaveUp(ctx context.Context, c Call) error { return l.post(ctx, "/gave-up", c, nil) }

// Beat writes a leader's heartbeat under the name c.Chat.
func (l *Client) Beat(ctx context.Context, c Call) error { return l.post(ctx, "/beat", c, nil) }

// Close drops the idle connections.
func (l *Client) Close() { l.http.CloseIdleConnections() }

func (l *Client) post(ctx context.Context, path string, c Call, into any) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return l.do(ctx, path, body, into, func(http.Header) {})
}

func (l *Client) do(ctx context.Context, path string, body []byte, into any, header func(http.Header)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(SecretHeader, l.secret)
	header(req.Header)
	resp, err := l.http.Do(req)
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusConflict:
		return fmt.Errorf("store %s: %w", path, fencing.ErrStaleToken)
	case resp.StatusCode >= http.StatusBadRequest:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("store %s: %s: %s", path, resp.Status, strings.TrimSpace(string(text)))
	case into != nil:
		return json.NewDecoder(resp.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

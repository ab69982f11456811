package screen

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func busy() Board {
	return Board{
		Elapsed: 12300 * time.Millisecond, Total: 600, Sent: 300, Handled: 280, Dropped: 5, InFlight: 15,
		Rows: []Row{
			{Name: "replica-1#2", State: "running", Leader: true, Held: 2, Waiting: 11, Handled: 123, Last: strings.Repeat("ünd ", 40)},
			{Name: "replica-2#1", State: "frozen", Held: 1, Waiting: 2, Handled: 77, Last: "SIGSTOP"},
			{Name: "replica-3#1", State: "stopped", Last: "gone"},
		},
	}
}

func TestThePictureFitsItsWindow(t *testing.T) {
	t.Parallel()
	for _, width := range []int{64, 72, 80, 99, 100, 120, 200} {
		lines := make(chan Line, 10)
		lines <- Line{At: time.Second, Replica: "replica-2#1", Text: strings.Repeat("frozen ", 50), Kind: Fault}
		m := &model{board: busy, lines: lines, interrupt: func() {}, bar: 40}
		m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		m.Update(tick{})
		picture := m.View().Content
		require.LessOrEqual(t, lipgloss.Width(picture), width, "width %d:\n%s", width, picture)
		require.LessOrEqual(t, lipgloss.Height(picture), 20)
		for _, word := range []string{"replica-1#2", "running", "★", "frozen", "held", "waiting", "123", "285/600"} {
			require.Contains(t, picture, word, "width %d:\n%s", width, picture)
		}
		if width >= 80 {
			require.Contains(t, picture, "last event")
			require.Contains(t, picture, "SIGSTOP")
		}
	}
}

func TestCtrlCInterruptsAndASecondOneGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	interrupts := 0
	m := &model{board: busy, lines: make(chan Line), interrupt: func() { interrupts++ }, bar: 40}
	key := tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	_, cmd := m.Update(key)
	require.Nil(t, cmd)
	require.Equal(t, 1, interrupts)
	_, cmd = m.Update(key)
	require.NotNil(t, cmd)
	require.IsType(t, tea.QuitMsg{}, cmd())
}

func TestTheLastPictureShowsTheEnd(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	var out bytes.Buffer
	lines := make(chan Line, 1)
	done := make(chan error, 1)
	go func() { done <- live(ctx, nil, &out, busy, lines, func() {}, tea.WithWindowSize(100, 30)) }()
	lines <- Line{Text: "the very last"}
	end()
	require.NoError(t, <-done)
	require.Contains(t, out.String(), "the very last")
}

package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
)

// frame is how often the table is drawn anew.
const frame = 100 * time.Millisecond

// eventsShown is how many of the last events stand under the table.
const eventsShown = 8

// Live draws on the terminal until ctx ends; the last picture stays. interrupt is called when the
// user presses Ctrl-C, which is a key and no signal as long as the terminal is in raw mode. With
// in == nil no keys are read, the terminal is left as it is, and Ctrl-C is a signal.
func Live(ctx context.Context, in io.Reader, out io.Writer, board func() Board, lines <-chan Line, interrupt func()) error {
	return live(ctx, in, out, board, lines, interrupt)
}

func live(ctx context.Context, in io.Reader, out io.Writer, board func() Board, lines <-chan Line, interrupt func(), more ...tea.ProgramOption) error {
	options := []tea.ProgramOption{tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()}
	program := tea.NewProgram(&model{board: board, lines: lines, interrupt: interrupt, bar: 40}, append(options, more...)...)
	stop := context.AfterFunc(ctx, func() { program.Send(lastFrame{}) })
	defer stop()
	_, err := program.Run()
	if errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return err
}

type (
	tick      struct{}
	lastFrame struct{}
)

type model struct {
	board     func() Board
	lines     <-chan Line
	interrupt func()

	interrupted bool
	now         Board
	events      []Line
	width       int
	bar         int
}

func (m *model) Init() tea.Cmd { return m.next() }

func (m *model) next() tea.Cmd { return tea.Tick(frame, func(time.Time) tea.Msg { return tick{} }) }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width = msg.Width
		m.bar = max(min(msg.Width-40, 60), 10)
	case tea.KeyPressMsg:
		if key := msg.String(); key == "ctrl+c" || key == "q" {
			m.interrupt()
			if m.interrupted { // the user does not want to watch the end; the terminal is his again
				return m, tea.Quit
			}
			m.interrupted = true
		}
	case tick:
		m.refresh()
		return m, m.next()
	case lastFrame:
		m.refresh()
		return m, tea.Quit
	}
	return m, nil
}

func (m *model) refresh() {
	m.now = m.board()
	for {
		select {
		case l := <-m.lines:
			m.events = append(m.events, l)
		default:
			m.events = m.events[max(0, len(m.events)-eventsShown):]
			return
		}
	}
}

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	good  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warn  = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	head  = lipgloss.NewStyle().Bold(true).Padding(0, 1)
	cell  = lipgloss.NewStyle().Padding(0, 1)
)

func (m *model) View() tea.View {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %5.1fs\n", bold.Render("etcdcoord demo"), m.progressBar(), m.now.Elapsed.Seconds())
	fmt.Fprintf(&b, "%s\n", faint.Render(cut(fmt.Sprintf("sent %d   handled %d   under way %d   gone with a replica %d",
		m.now.Sent, m.now.Handled, m.now.InFlight, m.now.Dropped), m.width)))
	b.WriteString(m.table())
	b.WriteByte('\n')
	for i := range eventsShown { // always as many lines, so that the picture does not jump
		if i < len(m.events) {
			b.WriteString(m.event(m.events[i]))
		}
		b.WriteByte('\n')
	}
	return tea.NewView(b.String())
}

func (m *model) progressBar() string {
	if m.now.Total == 0 {
		return fmt.Sprintf("%d updates", m.now.Sent)
	}
	done := m.now.Handled + m.now.Dropped
	full := m.bar * done / m.now.Total
	return good.Render(strings.Repeat("█", full)) + faint.Render(strings.Repeat("░", m.bar-full)) +
		fmt.Sprintf(" %d/%d", done, m.now.Total)
}

// narrow is the width below which the table is abridged.
const narrow = 100

func (m *model) table() string {
	held := "turns held"
	if m.width > 0 && m.width < narrow {
		held = "held"
	}
	// What stands left of the last event, with borders and a replica's name of 12 characters.
	room := m.width - 63 - len(held)
	headers := []string{"replica", "state", "leader", held, "waiting", "handled"}
	if room >= 8 || m.width == 0 {
		headers = append(headers, "last event")
	}
	t := table.New().Border(lipgloss.RoundedBorder()).BorderStyle(faint).Headers(headers...).
		StyleFunc(func(row, col int) lipgloss.Style {
			switch {
			case row == table.HeaderRow:
				return head
			case col == 1:
				return stateStyle(m.now.Rows[row].State)
			case col >= 3 && col <= 5:
				return cell.Align(lipgloss.Right)
			}
			return cell
		})
	for _, r := range m.now.Rows {
		leader := ""
		if r.Leader {
			leader = "★"
		}
		row := []string{r.Name, r.State, leader, strconv.Itoa(r.Held), strconv.Itoa(r.Waiting), strconv.Itoa(r.Handled)}
		if len(headers) > len(row) {
			row = append(row, cut(r.Last, room))
		}
		t.Row(row...)
	}
	return t.String()
}

// cut shortens text to room characters; 0 or less is no limit.
func cut(text string, room int) string {
	if r := []rune(text); room > 0 && len(r) > room {
		return string(r[:room-1]) + "…"
	}
	return text
}

func stateStyle(state string) lipgloss.Style {
	switch state {
	case "running":
		return cell.Inherit(good)
	case "frozen", "stopping", "starting", "stopped":
		return cell.Inherit(warn)
	}
	return cell.Inherit(bad)
}

func (m *model) event(l Line) string {
	text := cut(l.String(), m.width)
	switch l.Kind {
	case Fault:
		return warn.Render(text)
	case Good:
		return good.Render(text)
	case Bad:
		return bad.Render(text)
	}
	return text
}

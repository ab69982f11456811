package testetcd

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// ErrClosed is returned when a member of a closed cluster is to be started.
var ErrClosed = errors.New("testetcd: the cluster is closed")

// Stop ends the member as abruptly as a kill would: connections are cut, streams broken, the
// leadership is not handed over. It returns when all of it is gone. Its data and ports are kept.
func (m *Member) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked()
}

// Restart stops the member if it runs and starts it with the same data and ports. It waits until
// the member serves, unless less than a majority runs with it: then none can.
func (m *Member) Restart() error {
	m.Stop()
	r, err := m.launch()
	if err != nil || m.cluster.running() <= len(m.cluster.members)/2 {
		return err
	}
	return m.waitReady(r)
}

// retire is Stop for good, and lets the ports go.
func (m *Member) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked()
	if m.retired {
		return
	}
	m.retired = true
	if m.front != nil {
		m.front.Close()
	}
	m.client.close()
	m.peer.close()
}

func (m *Member) stopLocked() {
	r := m.run.Swap(nil)
	if r == nil {
		return
	}
	if m.front != nil {
		m.front.Down()
	}
	r.stop()
}

// stop breaks first what embed's Close would wait for: Close gives open streams seven seconds to
// end by themselves, and hangs on a member that never became ready unless its server has stopped.
func (r *run) stop() {
	if rpc := r.rpc.Load(); rpc != nil {
		rpc.Stop()
	}
	r.etcd.Server.HardStop()
	r.etcd.Close()
}

// launch starts the member if it does not run, without waiting until it serves.
func (m *Member) launch() (*run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return nil, fmt.Errorf("%s: %w", m.name, ErrClosed)
	}
	if r := m.run.Load(); r != nil {
		return r, nil
	}
	if m.front != nil {
		m.front.Accept()
	}
	r := &run{}
	cfg := m.embedConfig()
	cfg.ServiceRegister = func(s *grpc.Server) { r.rpc.Store(s) }
	var err error
	if r.etcd, err = embed.StartEtcd(cfg); err != nil {
		return nil, fmt.Errorf("testetcd: %s does not start on %s and %s: %w", m.name, m.Endpoint(), m.peerAddr(), err)
	}
	m.run.Store(r)
	return r, nil
}

// waitReady waits until the member serves. A member that does not is left as it is: it may still
// come, and Close ends it in any case.
func (m *Member) waitReady(r *run) error {
	timeout := time.NewTimer(m.cluster.cfg.StartTimeout)
	defer timeout.Stop()
	select {
	case <-r.etcd.Server.ReadyNotify():
		return nil
	case <-r.etcd.Server.StopNotify():
		return fmt.Errorf("testetcd: %s was stopped, or ended by itself, before it served", m.name)
	case <-timeout.C:
		return fmt.Errorf("testetcd: %s did not serve within %v: raise StartTimeout, or see whether the machine is overloaded",
			m.name, m.cluster.cfg.StartTimeout)
	}
}

package natsrun

import "errors"

var (
	// ErrDirInUse is returned when another server, of this process or of any
	// other on the machine, holds the store directory. Two servers on one
	// directory would destroy each other's streams.
	ErrDirInUse = errors.New("natsrun: store directory is in use")

	// ErrDirUnusable is returned when the store directory cannot be created or
	// written. The cause is wrapped too (os.ErrPermission for example).
	ErrDirUnusable = errors.New("natsrun: store directory cannot be used")

	// ErrNoLeader is returned when no node leads the stream, because it does not
	// exist or because the nodes have not elected one.
	ErrNoLeader = errors.New("natsrun: stream has no leader")

	// ErrNoNodeMain is returned when ClusterConfig.Processes is set in a program
	// that has not called NodeMain: its copies would run the program once more
	// instead of a node.
	ErrNoNodeMain = errors.New("natsrun: NodeMain was not called")

	// ErrNoProcess is returned by Kill, Pause and Continue on a node that is not
	// a process of its own: set ClusterConfig.Processes.
	ErrNoProcess = errors.New("natsrun: node is not a process")

	// ErrNotReady is returned when a server or a cluster did not become ready in
	// the time given. What it still waited for is in the message.
	ErrNotReady = errors.New("natsrun: not ready in time")

	// ErrPortInUse is returned when something else listens on the asked port.
	ErrPortInUse = errors.New("natsrun: port is in use")

	// ErrStopped is returned by operations on a server that is stopped, and by
	// in-process connections while it restarts.
	ErrStopped = errors.New("natsrun: server is stopped")
)

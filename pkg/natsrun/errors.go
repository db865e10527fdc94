package natsrun

import "errors"

var (
	// ErrDirInUse is returned when another server, in this process or in any other of the machine, has locked the store
	// directory. Two servers on one directory would destroy each other's streams.
	ErrDirInUse = errors.New("natsrun: store directory is in use")

	// ErrDirUnusable is returned when the store directory cannot be created or written. The cause is wrapped too (for
	// example os.ErrPermission).
	ErrDirUnusable = errors.New("natsrun: store directory cannot be used")

	// ErrNoLeader is returned when no node leads the stream, because it does not
	// exist or because the nodes have not elected one.
	ErrNoLeader = errors.New("natsrun: stream has no leader")

	// ErrNoNodeMain is returned when ClusterConfig.Processes is set in a program that has not called NodeMain: its
	// child processes would run the whole program instead of a node.
	ErrNoNodeMain = errors.New("natsrun: NodeMain was not called")

	// ErrNoProcess is returned by Kill, Pause and Continue on a node that is not
	// a process of its own: set ClusterConfig.Processes.
	ErrNoProcess = errors.New("natsrun: node is not a process")

	// ErrNotReady is returned when a server or a cluster did not become ready in time. The message has the missing
	// condition.
	ErrNotReady = errors.New("natsrun: not ready in time")

	// ErrPortInUse is returned when another program listens on the requested port.
	ErrPortInUse = errors.New("natsrun: port is in use")

	// ErrStopped is returned by operations on a server that is stopped, and by
	// in-process connections while it restarts.
	ErrStopped = errors.New("natsrun: server is stopped")
)

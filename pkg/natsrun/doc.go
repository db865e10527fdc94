// Package natsrun runs NATS inside this process: one server that is ready in
// milliseconds, or a cluster whose nodes can be stopped, killed and restarted.
package natsrun

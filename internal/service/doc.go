// Package service is the frame of a service: configuration from the environment, the connection to NATS, the streams
// it needs, an HTTP server with probes, metrics and errors in the form of RFC 9457, event streams and WebSockets,
// NATS micro services, workers, and an orderly stop.
//
// A service fills in a [Spec]. [Run] runs it as a program, [Start] within another one. Every log line and error begins
// with the name of the service.
package service

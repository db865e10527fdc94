// Package enricher attaches delivery links to restaurants. It looks up each place once, however many requests name it.
//
// [Run] is the service: it answers over HTTP and NATS micro, and handles the jobs that its answers queue.
// [Start] runs it within another program.
package enricher

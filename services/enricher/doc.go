// Package enricher attaches delivery links to restaurants, each place looked up once however many ask at the same time.
//
// [Run] is the service: it answers over HTTP and NATS micro, and works the jobs that the answers leave behind.
// [Start] is the same for a program that embeds it.
package enricher

// Package notify publishes events, and asks a notifier for their outcomes, over NATS.
package notify

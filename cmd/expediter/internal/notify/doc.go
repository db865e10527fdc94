// Package notify tells a notifier events, and asks it what became of them, over NATS.
package notify

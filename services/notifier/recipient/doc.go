// Package recipient finds the recipients of an event. A [Resolver] is a source of recipients: the [Directory], a service
// behind [HTTP], or the event itself, which [Carried] prefers to another source. Recipients come one after the other, so
// that an audience of any size needs no memory.
package recipient

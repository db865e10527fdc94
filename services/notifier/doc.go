// Package notifier tells everybody whom an event concerns, once on each channel.
//
// An event becomes one plan, which holds every user and channel; a plan becomes rows, each stored once; a row is sent,
// and what the channel said is kept in a ledger. Each step reads what the one before it stored, never does it again, so
// that a crash anywhere loses nothing and repeats nothing but, at most, one call to a provider, under the same key.
//
// An event may be told later than it is published, be cancelled, and what has failed of it be sent again: see
// [Notifier.Cancel] and [Notifier.Replay].
//
// [Run] is the service, [Start] the same for a program that embeds it.
package notifier

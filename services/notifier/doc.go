// Package notifier delivers each event to its recipients, once on each channel.
//
// An event becomes one plan, which holds every user and channel; a plan becomes notifications, each stored once; a notification is
// sent, and the answer of the channel is kept in a record. A notification of the inbox that may be delivered at once becomes an item
// directly, and is not stored. Each step reads the stored result of the step before it and never repeats that step. A crash anywhere
// loses nothing, and repeats at most one call to a provider, under the same key.
//
// An event may be delivered later than it is published, be cancelled, and its failed notifications be sent again: see
// [Notifier.Cancel] and [Notifier.Replay].
//
// [Run] is the service, [Start] runs it within another program.
package notifier

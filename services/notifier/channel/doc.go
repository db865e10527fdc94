// Package channel is how notifications leave: a [Channel] sends one message to one user, and returns the outcome.
//
// What keeps a message from being sent is an [*Error] whose [Kind] says whether to try again, and whether the provider
// may have taken the message nevertheless.
package channel

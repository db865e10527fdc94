// Package deliveries keeps the delivery of each notification: its state, the reason for it, and every attempt to send the notification.
//
// An attempt is recorded before the provider is called. So an attempt without an outcome shows that the provider may have
// been called, and by which process, even when that process is gone.
package deliveries

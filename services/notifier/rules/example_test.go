package rules_test

import (
	"fmt"

	"github.com/expediter-io/expediter/services/notifier/rules"
)

func ExampleParse() {
	r, err := rules.Parse([]byte(`
version: 1
events:
  RESERVATION_REQUESTED:
    RESTAURANT_USER: {channels: [inapp, email], category: reservations}
`), []string{"inapp", "email"})
	fmt.Println(r.For("RESERVATION_REQUESTED")["RESTAURANT_USER"].Channels, err)

	_, err = rules.Parse([]byte(`
version: 1
events:
  RESERVATION_REQUESTED:
    RESTAURANT_USER: {channels: [pigeon]}
    CUSTOMER: {chanels: [email]}
`), []string{"inapp", "email"})
	fmt.Println(err)
	// Output:
	// [inapp email] <nil>
	// line 5: events.RESERVATION_REQUESTED.RESTAURANT_USER.channels has "pigeon": want inapp, email
	// line 6: events.RESERVATION_REQUESTED.CUSTOMER.chanels is not known here: want category, channels, digest, fallback, fallback_after, later, priority, scope, template, throttle
	// line 6: events.RESERVATION_REQUESTED.CUSTOMER.channels is missing: want a list of inapp, email
}

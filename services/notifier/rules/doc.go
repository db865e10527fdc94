// Package rules says who is told about which events, and how: for each type of event and kind of recipient the channels,
// the template, the category, and the priority.
//
//	version: 1
//	events:
//	  RESERVATION_REQUESTED:
//	    RESTAURANT_USER:
//	      scope: aggregate        # who: the aggregate's (default), the user of the event, or all
//	      channels: [inapp, email]
//	      category: reservations  # what users switch off together
//	      priority: normal        # low, normal, high, critical
//	      template: reservation.requested
//	    CUSTOMER:
//	      scope: user
//	      channels: [inapp]
//	  "*":                        # every type that is not named
//	    ADMIN:
//	      scope: all
//	      channels: [inapp]
//
// JSON is read too, being YAML. A file with mistakes is refused as a whole, with all of them and their lines. The notifier also
// takes for one a route to a channel with texts whose text is not there. A route of "*" that names no template is told by the
// template of the event's own type: nobody knows that before it comes, so it is not checked, and a row without a text fails.
package rules

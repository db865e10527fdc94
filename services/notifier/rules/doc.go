// Package rules reads the rules of notifications: for each type of event and kind of recipient the channels, the
// template, the category, and the priority.
//
//	version: 1
//	categories:                 # the titles that users see; optional
//	  reservations: {default: Reservations, he: הזמנות}
//	events:
//	  RESERVATION_REQUESTED:
//	    RESTAURANT_USER:
//	      scope: aggregate        # who: the aggregate's (default), the user of the event, or all
//	      channels: [inapp]
//	      fallback: [webpush, email, sms] # one of these: the next when the one before has not reached the user
//	      fallback_after: 10m     # for how long each is tried; defaults to as often as it is
//	      later:                  # more channels, some time after the others
//	        - after: 30m          # up to 504h
//	          unread: true        # only if the user has not read it in the inbox by then; needs inapp in channels
//	          channels: [email]
//	      category: reservations  # events that users switch off together
//	      priority: normal        # low, normal, high, critical
//	      template: reservation.requested
//	      digest:                 # delivered together, by the user's local time; see below
//	        every: 30m            # whole minutes that divide a day, counted from midnight; or
//	        # at: ["09:00", "17:00"]
//	        channels: [email]     # default: all of the route but inapp
//	        template: reservations.digest # default: the category, or else the template, with .digest behind
//	      throttle:               # of one category to one user on one channel
//	        limit: 5              # 1 to 100
//	        per: 1h               # up to 168h; in no stretch of time as long as this are there more
//	        over: defer           # notifications over the limit are delivered later (default), or: suppress
//	    CUSTOMER:
//	      scope: user
//	      channels: [inapp]
//	  "*":                        # every type that is not named
//	    ADMIN:
//	      scope: all
//	      channels: [inapp]
//
// All events of one category, or of one template without a category, go into the same digest for a user on a channel. A digest
// respects quiet hours, opt-outs and mutes, and no throttle. A user's own preference for digests overrides the rule. A window in
// which the clock changes is longer or shorter by the change. A time of day that the clock jumps over is later by the length of
// the jump, and of a time that it shows twice the first counts. Critical events are delivered at once, whatever else a rule has.
//
// The times of later count from the time at which the event is delivered on the other channels. The notifications of later are stored
// with all others, and can be cancelled. They respect quiet hours and throttles, and are in no digest. With unread a notification ends as
// suppressed, with the reason read, when the user has read or archived the item of the inbox, or it is no longer there. This is
// checked each time that the notification is sent. A user whose inbox did not get the item, because of an opt-out or a failure, has not
// read it.
//
// JSON is read too, because it is YAML. A file with mistakes is refused as a whole, with all mistakes and their lines. A route to
// a channel whose text is missing is a mistake, too. A route of "*" that names no template is delivered by the template of the
// event's own type. The types are not known in advance, so such a template is not checked, and a notification without a text fails.
package rules

package operate

// Notifications selects notifications, in the form that the notifier reads.
type Notifications struct {
	Address       string `json:"address,omitempty"`
	Channel       string `json:"channel,omitempty"`
	EventID       string `json:"event_id,omitempty"`
	Reason        string `json:"reason,omitempty"`
	RecipientType string `json:"recipient_type,omitempty"`
	State         string `json:"state,omitempty"`
	UserID        string `json:"user_id,omitempty"`
}

// Fields implements [Filter].
func (n *Notifications) Fields() []Field {
	return []Field{
		{"event", "notifications of this event", nil, &n.EventID},
		{"user", "notifications of this user", nil, &n.UserID},
		{"type", "", nil, &n.RecipientType},
		{"channel", "notifications of this channel, such as inapp or email", nil, &n.Channel},
		{"address", "notifications to this one of the user's addresses on a channel, such as main", nil, &n.Address},
		{"state", "", nil, &n.State},
		{"reason", "notifications in their state for this reason, such as exhausted or opt_out", nil, &n.Reason},
	}
}

// NotificationStates are the states of notifications, in the order of a notification's life, and whether they are good, bad, or neither.
var NotificationStates = [][2]string{
	{"pending", "warn"},
	{"deferred", "warn"},
	{"sending", "warn"},
	{"sent", "good"},
	{"delivered", "good"},
	{"bounced", "bad"},
	{"suppressed", "soft"},
	{"split", "soft"},
	{"failed", "bad"},
}

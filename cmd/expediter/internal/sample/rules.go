package sample

import (
	_ "embed"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

//go:embed rules.yaml
var rules []byte

// Rules are rules of a notifier whose only channel is the inbox.
func Rules() []byte { return slices.Clone(rules) }

// Event is one that the rules tell the staff of the restaurant about, and the guest.
const Event = `{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,` +
	`"user_id":"carla","payload":{"guests":4}}`

// Restaurant is the one that the sample's recipients belong to.
var Restaurant = recipient.Member{Type: "RESTAURANT", ID: "5"}

// Recipients are some of each kind that the rules name. All belong to Restaurant.
func Recipients() []contracts.Recipient {
	return []contracts.Recipient{
		{RecipientType: contracts.RecipientRestaurantUser, UserID: "ada", Locale: "en"},
		{RecipientType: contracts.RecipientRestaurantUser, UserID: "ben", Locale: "he", TimeZone: "Asia/Jerusalem"},
		{RecipientType: contracts.RecipientCustomer, UserID: "carla", Locale: "it", TimeZone: "Europe/Rome"},
		{RecipientType: contracts.RecipientAgencyUser, UserID: "dov"},
		{RecipientType: contracts.RecipientAdmin, UserID: "eva"},
	}
}

package main

import "github.com/expediter-io/expediter/services/enricher/match"

// fieldSet is what a comparison gets to see.
type fieldSet struct {
	name           string
	address, phone bool
	location       bool
}

var fieldSets = []fieldSet{ //nolint:gochecknoglobals // a constant table
	{name: "name+address+city+phone", address: true, phone: true, location: true},
	{name: "name+address+city", address: true, location: true},
	{name: "name+city"},
}

func (f fieldSet) only(p match.Place) match.Place {
	if !f.address {
		p.Address = ""
	}
	if !f.phone {
		p.Phone = ""
	}
	if !f.location {
		p.Location = nil
	}
	return p
}

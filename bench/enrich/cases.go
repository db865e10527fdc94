package main

import (
	"fmt"
	"math"
)

// kase is one combination of what is measured.
type kase struct {
	Transport string `json:"transport"` // "http" or "nats"
	Kind      string `json:"kind"`      // "hit" or "miss"
	Places    int    `json:"places"`    // in one request
	Clients   int    `json:"clients"`   // that ask at the same time

	requests int // in a round, of all clients together
}

func (k kase) String() string {
	return fmt.Sprintf("%s/%s/%d/%d", k.Transport, k.Kind, k.Places, k.Clients)
}

func (k kase) hit() bool { return k.Kind == "hit" }

// cases lists what is measured, in the order of the report.
func cases(o options) []kase {
	requests := map[string]map[int]int{
		"hit":  {1: 500, 10: 500, 100: 200},
		"miss": {1: 100, 10: 60, 100: 20},
	}
	var all []kase
	for _, clients := range []int{1, manyClients} {
		for _, transport := range []string{"http", "nats"} {
			for _, kind := range []string{"hit", "miss"} {
				for _, places := range []int{1, 10, 100} {
					n := int(math.Ceil(float64(requests[kind][places]) * o.scale))
					if clients > 1 && kind == "hit" {
						n *= 2
					}
					k := kase{Transport: transport, Kind: kind, Places: places, Clients: clients, requests: n}
					if o.only.MatchString(k.String()) {
						all = append(all, k)
					}
				}
			}
		}
	}
	return all
}

// manyClients is how many ask at the same time where throughput is measured.
const manyClients = 16

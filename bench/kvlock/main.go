// Command kvlock measures pkg/kvlock side by side with its peers, over TCP on the loopback: locks (uncontended, woken,
// handed over among 32), coalesced computations, reads, take-over after a kill -9, and 10,000 waiters.
//
//	go -C bench run ./kvlock [--rounds N] [--scale X] [--short] [--only REGEXP] [--json] [--cpuprofile FILE]
//
// Every server is a process of its own, so that its CPU time is counted apart: NATS (one server, and two clusters of
// three), and redis-server and etcd where they are installed. What is missing is named and skipped; README.md beside
// this folder says how to install it.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it.
package main

import "github.com/expediter-io/expediter/bench/internal/rig"

func main() {
	rig.NodeMain()
	childMain()
	rig.Main("kvlock", nil, measure)
}

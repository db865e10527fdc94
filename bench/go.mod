module github.com/expediter-io/expediter/bench

go 1.26.0

require github.com/expediter-io/expediter/services/enricher v0.0.0

require golang.org/x/text v0.43.0 // indirect

replace github.com/expediter-io/expediter/services/enricher => ../services/enricher

replace github.com/expediter-io/expediter/pkg/contracts => ../pkg/contracts

replace github.com/expediter-io/expediter/pkg/kvlock => ../pkg/kvlock

replace github.com/expediter-io/expediter/pkg/worker => ../pkg/worker

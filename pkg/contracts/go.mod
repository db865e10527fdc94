module github.com/expediter-io/expediter/pkg/contracts

go 1.26.0

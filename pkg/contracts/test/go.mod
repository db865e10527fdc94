module github.com/expediter-io/expediter/pkg/contracts/test

go 1.26

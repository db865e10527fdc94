module github.com/expediter-io/expediter/pkg/kvlock

go 1.26

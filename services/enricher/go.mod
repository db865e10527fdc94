module github.com/expediter-io/expediter/services/enricher

go 1.26

package httpapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// Config configures the API.
type Config struct {
	// Files keeps sources that are handed in with a job. Defaults to none: they are refused.
	Files Files

	// Heartbeat is how often an idle event stream gets a comment, so that proxies keep it open.
	// Defaults to 15 seconds.
	Heartbeat time.Duration

	// Recipes are read from here. Defaults to none: another service has them.
	Recipes *kvstore.Store

	// Router has the routes that every service has. Required.
	Router *service.Router

	// Service takes the jobs. Required.
	Service *imports.Service
}

// API answers what is about jobs and recipes.
type API struct {
	Config

	uploads *room
}

// Add adds the routes to the router.
func Add(cfg Config) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	a := &API{Config: cfg, uploads: newRoom()}
	router := cfg.Router
	router.Handle("POST /v1/imports", access.Own(access.Publish), a.submit)
	router.Handle("GET /v1/imports/{job}", access.Own(access.Read), a.get)
	router.HandleStream("GET /v1/imports/{job}/events", access.Own(access.Read), a.events)
	router.Handle("POST /v1/imports/{job}/cancel", access.Own(access.Publish), a.change(cfg.Service.Cancel))
	router.Handle("POST /v1/imports/{job}/retry", access.Own(access.Publish), a.change(cfg.Service.Retry))
	if cfg.Recipes != nil {
		router.Handle("GET /v1/recipes", access.Own(access.Read), a.list)
		router.Handle("GET /v1/recipes/{recipe}", access.Own(access.Read), a.recipe)
	}
	router.Handle("GET /health", access.Public(), func(w http.ResponseWriter, _ *http.Request) error {
		service.WriteJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
		return nil
	})
}

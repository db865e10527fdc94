package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/nats-io/nats.go"
)

// asker is one client on a connection of its own.
type asker interface {
	ask(ctx context.Context, body []byte) ([]byte, error)
}

type httpAsker struct {
	client *http.Client
	url    string
}

func (a *httpAsker) ask(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer: %s: %.300s", resp.Status, data)
	}
	return data, nil
}

type natsAsker struct{ nc *nats.Conn }

func (a *natsAsker) ask(ctx context.Context, body []byte) ([]byte, error) {
	m, err := a.nc.RequestWithContext(ctx, "enricher.v1.enrich", body)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	if text := m.Header.Get("Nats-Service-Error"); text != "" {
		return nil, fmt.Errorf("answer: %s: %.300s", text, m.Data)
	}
	return m.Data, nil
}

// body is a request for places, each of the size that a search returns. Requests for the same places differ in nothing.
func body(ids []int) []byte {
	text := []byte(`{"cityText":"Springfield","results":[`)
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `{"placeId":"ChIJ-bench-%07[1]d-Qx7","name":"Kitchen %[1]d, the Corner","address":"%[1]d Evergreen Terrace, Springfield",`+
			`"location":{"lat":%.5[2]f,"lng":%.5[3]f},"phone":"+1 555 %07[1]d","rating":4.4,"userRatingsTotal":1076,"openNow":true,`+
			`"priceLevel":2,"types":["restaurant","meal_takeaway","food"],"photoReference":"photo-79528076302bbdf9-%[1]d"}`,
			id, 30+float64(id%10000)/1000, 30+float64(id/10000)/1000)
	}
	return append(text, `]}`...)
}

// check says what is wrong with an answer, without the cost of reading it as JSON.
func check(k kase, answer []byte) error {
	pending := 0
	if !k.hit() {
		pending = k.Places
	}
	if !bytes.Contains(answer, []byte(`"pending":`+strconv.Itoa(pending))) {
		return fmt.Errorf("%s: want %d pending: %.300s", k, pending, answer)
	}
	return nil
}

package talk

// Threshold is the score from which on a sentence is a step.
const Threshold = 0.25

// base is the log-odds of a sentence of which nothing was observed.
const base = -2.357

// weights are the terms of the features in the log-odds: a logistic regression over the sentences of 30 cooking videos in
// which people had marked the steps.
var weights = Features{
	StrongBase:  0.699,
	StrongIng:   0.776,
	StrongPast:  -0.182,
	StrongElse:  0.656,
	StrongMore:  -0.037,
	MotionBase:  0.543,
	MotionElse:  0.333,
	LightBase:   -0.156,
	StrongFood:  0.539,
	LightFood:   -0.209,
	VerbPronoun: 0.403,
	FoodOne:     0.857,
	FoodMore:    0.183,
	AmountFood:  0.496,
	HeatSaid:    0.663,
	Until:       0.318,
	Vessel:      0.25,
	Plan:        0.277,
	Sequence:    0.259,
	First:       0.649,
	Negated:     -0.367,
	PastTalk:    -0.111,
	Taste:       -0.157,
	Option:      -0.578,
	Reason:      0.318,
	Story:       -0.27,
	State:       -0.484,
	IfWhen:      -0.147,
	Short:       -0.703,
	Long:        0.054,
	VeryLong:    -0.679,
	Beginning:   -0.688,
	Ending:      -0.589,
	NoVerb:      -0.914,
	Core:        0.47,
	GiveIt:      0.464,
	Habit:       -0.166,
}

// cookingBase is the log-odds of a document of which nothing was observed.
const cookingBase = 2.853

// cookingWeights are the terms of the traits in the log-odds. With those of the stems, in stems.txt, they are a logistic
// regression over texts that were written for it, small talk, and real speech. No stem of small talk has a positive weight.
var cookingWeights = traits{
	FoodActed:     0.608,
	HeatNamed:     0.681,
	UntilNamed:    0.084,
	VesselNamed:   0.333,
	PronounActed:  0.894,
	TasteNamed:    0.676,
	StoriesTold:   -0.365,
	FoodsSure:     0.599,
	FoodsDoubtful: 0.182,
	FoodKinds:     0.000,
	KitchenWords:  0.000,
	Computing:     -1.882,
	Workshop:      -5.795,
	Garden:        -2.387,
	Lab:           -3.308,
	Body:          -4.803,
	Health:        -3.341,
	Home:          -4.298,
	Animals:       -3.357,
	Dining:        -1.598,
	Society:       -2.751,
	KitchenShare:  1.309,
	ListWritten:   1.985,
}
